// swift-tools-version: 6.0
// A package of an app that uses CoreBluetooth on Linux. `scripts/consumer` builds and runs it, outside of this tree.
import PackageDescription

let package = Package(
    name: "Consumer",
    // As README.md says. The script has the package manager take a local clone in its place.
    dependencies: [.package(url: "https://github.com/OWNER/BluezKit.git", from: "0.10.0")],
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
