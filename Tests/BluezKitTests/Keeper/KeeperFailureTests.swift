import BluezKitRestore
import Foundation
import Testing

@testable import BluezKit

#if compiler(>=6.2)  // exit tests
/// A keeper, or its app, that lacks something. In processes of their own: variables and limits are of a whole process.
@Suite struct KeeperFailureTests {
    // The app could not use its file, and worked alone. So did the keeper, which started the app again and again: up to
    // eight of them scanned and connected.
    @Test("R-26 D11 an app whose state cannot be used has the keeper end what it does for it")
    func unusableState() async {
        await #expect(processExitsWith: .success) {
            let (run, state) = (try TemporaryDirectory(), try TemporaryDirectory())
            let socket = run.path + "/keeper"
            setenv("BLUEZKIT_KEEPER_SOCKET", socket, 1)
            // One that was killed has left them: the next keeper continues with what is in the journal.
            precondition(FileManager.default.createFile(atPath: socket + ".lock", contents: nil))
            let journal = KeeperJournal(socket: socket)
            let paths = ["app", "other"].map(state.file)
            journal.write(
                paths.map {
                    KeeperHello(
                        role: .central, statePath: $0, app: "app", address: "unix:path=/bus", adapter: nil,
                        relaunch: .never)
                })
            let options: [String: Any] = [BluezManagerOptionStateDirectoryKey: state.path]
            func open() -> IntentBook? { IntentBook.open(.central, identifier: "app", options: options).book }
            var book = open()
            precondition(book?.path == paths[0])
            // In use by another one: that may have the keeper.
            precondition(open()?.path == nil && journal.read().count == 2)
            book?.die()
            book = nil
            chmod(state.path, 0o777)
            precondition(open()?.path == nil)
            precondition(journal.read().map(\.statePath) == [paths[1]])
        }
    }

    // `accept` failed, the source stayed ready, and the keeper took all of a processor without a word.
    @Test("a keeper without a free descriptor says so, and takes the app when it has one")
    func noDescriptors() async {
        await #expect(processExitsWith: .success) {
            _ = LogCapture.shared
            let directory = try TemporaryDirectory()
            let socket = directory.path + "/keeper"
            setenv("BLUEZKIT_KEEPER_SOCKET", socket, 1)
            let host = KeeperHost()
            try Keeper.listen(at: socket, for: host) {}
            let first = try Keeper.running()
            // Timers need a descriptor of their own, and have it once one has fired.
            try? await eventually("a timer fires", within: 0.001) { false }
            var before = rlimit()
            getrlimit(__rlimit_resource_t(UInt32(RLIMIT_NOFILE.rawValue)), &before)
            let next = dup(0)
            close(next)
            // One for the app's end.
            var limit = rlimit(rlim_cur: rlim_t(next) + 1, rlim_max: before.rlim_max)
            setrlimit(__rlimit_resource_t(UInt32(RLIMIT_NOFILE.rawValue)), &limit)
            let app = Task.detached { try Keeper.running() != nil }
            try await LogCapture.shared.expect("the keeper cannot take an app")
            setrlimit(__rlimit_resource_t(UInt32(RLIMIT_NOFILE.rawValue)), &before)
            let isTaken = try await app.value
            precondition(isTaken && first != nil)
        }
    }
}
#endif
