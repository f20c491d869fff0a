/// The keeper, which only apps need that continue while they are not running: nothing about it is a problem for others.
extension DoctorReport {
    mutating func checkKeeper(_ found: Surroundings) {
        guard let keeper = found.keeper else { return }
        guard let socket = keeper.socket else {
            return add(
                "keeper", .warning, "XDG_RUNTIME_DIR is not set, so there can be no keeper",
                "only apps that continue while they are not running need one; log in as a user of systemd, or set "
                    + "BLUEZKIT_KEEPER_SOCKET")
        }
        switch (keeper.process, keeper.program) {
        case (.running(let managers), _):
            add("keeper", .ok, "bluezkit-keeper runs, for \(managers) manager\(managers == 1 ? "" : "s")")
        case (.unusable(let message), _):
            add(
                "keeper", .warning, "the bluezkit-keeper that runs cannot be used (\(message))",
                "kill $(cat \(socket).lock), and the next app that needs one starts its own")
        case (.none, let program?):
            add("keeper", .ok, "bluezkit-keeper is started when an app needs it (\(program))")
        case (.none, nil):
            add(
                "keeper", .warning, "bluezkit-keeper is not installed",
                "only apps that continue while they are not running need it; copy it beside them or to /usr/libexec")
        }
        if let directory = keeper.sharedDirectory {
            add(
                "keeper", .warning, "other users can write to \(directory), so that no keeper listens there",
                "set XDG_RUNTIME_DIR or BLUEZKIT_KEEPER_SOCKET to a place that only you can write to")
        }
    }
}
