import BluezDBus

/// How many inputs a test tries: all where what it tests is optimized, as a part of `.ci/run` has it, and a tenth in a
/// debug build, where each takes about ten times as long.
func thorough(_ count: Int) -> Int { isDebugBuild ? count / 10 : count }
