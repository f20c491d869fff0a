// swift-tools-version: 6.0
// A package of an app that uses CoreBluetooth on Linux. `scripts/consumer` builds and runs it.
import PackageDescription

let package = Package(
    name: "Consumer",
    dependencies: [.package(name: "BluezKit", path: "../..")],
    targets: [
        .executableTarget(
            name: "Consumer", dependencies: [.product(name: "CoreBluetooth", package: "BluezKit")])
    ]
)
