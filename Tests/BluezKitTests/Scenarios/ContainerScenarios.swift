import Foundation
import Testing

private let namespaces = [
    "/usr/bin/unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "/bin/sh", "-c",
    "mount -t tmpfs none /sys && unset XDG_RUNTIME_DIR XDG_SESSION_ID HOME && exec \"$@\"", "sh",
]

// Not a closure among the suite's traits: the compiler of Swift 6.0.3 crashes of it.
@Sendable private func canMakeNamespaces() async -> Bool { (try? await run(namespaces + ["true"])) == 0 }

extension Scenarios {
    /// An app in a container, as far as namespaces make one: the host's bus is all that it has of the host.
    @Suite(.enabled("namespaces cannot be made here", canMakeNamespaces))
    struct ContainerScenarios {
        // Slow: in the rig, three programs start one after the other, each in namespaces of its own.
        @Test(
            "R-3 D11 without /sys, a runtime directory and a login session, among processes of its own: killed, restored"
        )
        func restored() async throws {
            let stage = try await RestorationScenarios.Stage()
            let arguments = ["--restore", "app", "--state-dir", stage.directory.path, "--follow", "180D,2A37"]
            try await stage.world.control("heart beat 5")
            for round in 0..<3 {
                let probe = try Probe(stage.world, arguments, launcher: namespaces)
                if round > 0 { try await probe.next("restored", RestorationScenarios.heart) }
                try await probe.next("value 2A37")
                try await probe.kill()
            }
            try await stage.world.control("heart beat 0")
            try await stage.world.endLinks()
        }
    }
}
