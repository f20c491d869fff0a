// swift-tools-version: 6.0
// Small programs that use BluezKit, most of them in one file. `make examples` builds and tests them; README.md says how
// to run them.
import PackageDescription

// The package manager calls a local package by its directory, and not every clone has the same name.
let kit = String(Context.packageDirectory.split(separator: "/").dropLast().last ?? "")
let async: Target.Dependency = .product(name: "CoreBluetoothAsync", package: kit)
let delegates: Target.Dependency = .product(name: "CoreBluetooth", package: kit)
let profiles: Target.Dependency = .product(name: "BluezKitProfiles", package: kit)

let package = Package(
    name: "Examples",
    platforms: [.macOS(.v15)],
    dependencies: [.package(path: "..")],
    targets: [
        .executableTarget(name: "scanner", dependencies: [async, delegates], path: "Scanner"),
        .executableTarget(name: "beacon-watch", dependencies: [async, delegates], path: "BeaconWatch"),
        .executableTarget(
            name: "thermometer-log", dependencies: [async, delegates, "CSQLite"], path: "ThermometerLog"),
        .executableTarget(name: "uart-terminal", dependencies: [async, delegates], path: "UARTTerminal"),
        .executableTarget(name: "thermostat", dependencies: [async, delegates], path: "Thermostat"),
        .executableTarget(name: "gateway", dependencies: [async, delegates, profiles, "CMosquitto"], path: "Gateway"),
        .executableTarget(name: "restoration", dependencies: [async, delegates], path: "Restoration"),
        .systemLibrary(
            name: "CSQLite", path: "CSQLite", pkgConfig: "sqlite3", providers: [.apt(["libsqlite3-dev"])]),
        .systemLibrary(
            name: "CMosquitto", path: "CMosquitto", pkgConfig: "libmosquitto", providers: [.apt(["libmosquitto-dev"])]),
        .testTarget(
            name: "ExamplesTests",
            dependencies: [.product(name: "BluezKitSimulator", package: kit), "CSQLite", "CMosquitto"],
            path: "Tests"),
    ],
    swiftLanguageModes: [.v6]
)
