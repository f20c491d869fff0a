/// How many inputs a test tries: all where the tests are optimized, as a part of `.ci/run` has them, and a tenth in a
/// debug build, where each takes about ten times as long.
func thorough(_ count: Int) -> Int {
    #if DEBUG
    count / 10
    #else
    count
    #endif
}
