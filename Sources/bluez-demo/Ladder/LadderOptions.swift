struct LadderOptions: Equatable {
    /// Whether this is the peer that the rungs are run against.
    var isPeer: Bool
    /// For each rung.
    var seconds: Double
    /// In seconds.
    var timeout: Double?

    init(_ parsed: ParsedArguments) throws(UsageError) {
        isPeer = parsed.has(OptionSpec(name: "--peer", help: ""))
        seconds = try parsed.seconds("--seconds") ?? 5
        timeout = try parsed.seconds("--timeout")
        if isPeer, parsed.has(CommandSpec.simulated) {
            throw parsed.error("--simulated needs no peer")
        }
        if parsed.first("--seconds") != nil, isPeer || parsed.has(CommandSpec.simulated) {
            throw parsed.error("--seconds is for the end that measures; --peer serves, and --simulated calculates")
        }
    }
}
