/// The command line makes no sense. `message` is one sentence that says why.
struct UsageError: Error, Equatable {
    let message: String
    /// Whose help says more; nil: the general one.
    var command: String?
}
