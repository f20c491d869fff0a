/// An invalid command line. `message` is one sentence that says why.
struct UsageError: Error, Equatable {
    let message: String
    /// The command whose help to refer to; nil: the general help.
    var command: String?
}
