// swift-tools-version: 6.0
// A package of an app that uses CoreBluetooth on Linux. `scripts/consumer` builds and runs it.
import PackageDescription

let package = Package(
    name: "Consumer",
    // A link that the script makes: the package manager uses the directory's name, and not every clone has this name.
    dependencies: [.package(name: "BluezKit", path: "../../.build/BluezKit")],
    targets: [
        .executableTarget(
            name: "Consumer",
            dependencies: [
                "Bystander",
                // Under another name, so that Bystander does not find it; see the porting guide.
                .product(
                    name: "CoreBluetooth", package: "BluezKit",
                    moduleAliases: ["CoreBluetooth": "CoreBluetoothForLinux"]),
            ]),
        // As in a package that does not know of BluezKit.
        .target(name: "Bystander"),
    ]
)
