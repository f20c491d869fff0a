/// A command that runs on the main queue until it is finished.
protocol Command: AnyObject {
    func start()
    /// Ends cleanly, then calls ``Program/quit(_:)``. May be called twice.
    func stop(_ status: ExitStatus)
}
