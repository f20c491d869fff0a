/// Something that runs on the main queue until it is over.
protocol Command: AnyObject {
    func start()
    /// Ends in order, then calls ``Program/quit(_:)``. May be called twice.
    func stop(_ status: ExitStatus)
}
