// swift-tools-version: 6.0
// A GTK 4 app with CoreBluetooth: `make gtk` in the root of the repository builds and runs it.
import PackageDescription

// The package manager goes by the name of the directory, and not every clone has the same one.
let bluezKit = Context.packageDirectory.split(separator: "/").dropLast(2).last.map(String.init) ?? "BluezKit"

let package = Package(
    name: "gtk-heart-rate",
    dependencies: [.package(path: "../..")],
    targets: [
        .systemLibrary(name: "CGtk", pkgConfig: "gtk4", providers: [.apt(["libgtk-4-dev"])]),
        .executableTarget(
            name: "gtk-heart-rate",
            dependencies: [
                "CGtk", "SimulatedSensors",
                .product(name: "CoreBluetooth", package: bluezKit),
                .product(name: "BluezKitGLib", package: bluezKit),
                .product(name: "BluezKitProfiles", package: bluezKit),
            ]),
        .target(
            name: "SimulatedSensors", dependencies: [.product(name: "BluezKitSimulator", package: bluezKit)]),
        // The same sensors in a process of their own, on a bus that outlives the app: for the test.
        .executableTarget(name: "simulated-sensors", dependencies: ["SimulatedSensors"]),
    ],
    swiftLanguageModes: [.v6]
)
