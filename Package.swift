// swift-tools-version: 6.0
import PackageDescription

let package = Package(
    name: "BluezKit",
    products: [
        // Apps written for Apple's CoreBluetooth depend on `CoreBluetooth` and change no source line.
        // It is a product of its own: a package that never names it keeps `canImport(CoreBluetooth)` false.
        .library(name: "CoreBluetooth", targets: ["CoreBluetooth"]),
        .library(name: "BluezKit", targets: ["BluezKit"]),
        .library(name: "BluezKitProfiles", targets: ["BluezKitProfiles"]),
        .library(name: "BluezKitSimulator", targets: ["BluezKitSimulator"]),
        .executable(name: "bluez-demo", targets: ["bluez-demo"]),
    ],
    targets: [
        // Modules of a whole graph of packages share one name space, so none is called just `DBus`.
        .systemLibrary(
            name: "CBluezDBusSystem", path: "Sources/CDBusSystem", pkgConfig: "dbus-1",
            providers: [.apt(["libdbus-1-dev"])]),
        .target(name: "CBluezDBus", dependencies: ["CBluezDBusSystem"], path: "Sources/CDBus"),
        .target(name: "BluezDBus", dependencies: ["CBluezDBus"]),
        .target(name: "CCoreBluetooth"),
        .target(name: "BluezKitRestore"),
        .target(name: "BluezKit", dependencies: ["BluezDBus", "BluezKitRestore", "CCoreBluetooth"]),
        .target(name: "CoreBluetooth", dependencies: ["BluezKit"]),
        .target(name: "BluezKitProfiles", dependencies: ["BluezKit"]),
        .target(name: "BluezKitSimulator", dependencies: ["BluezDBus"]),
        .executableTarget(
            name: "bluez-demo", dependencies: ["BluezKit", "BluezKitProfiles", "BluezKitSimulator", "BluezDBus"]),
        .testTarget(
            name: "BluezKitTests",
            dependencies: [
                "CoreBluetooth", "BluezKit", "BluezKitProfiles", "BluezKitRestore", "BluezKitSimulator", "BluezDBus",
                "bluez-demo",
            ]),
        // Code as apps have it, in both language modes: the folders are one. It is compiled, not run.
        .testTarget(
            name: "PortingSwift5", dependencies: ["CoreBluetooth", "BluezKitProfiles"], path: "Tests/Porting/Swift5",
            swiftSettings: [.swiftLanguageMode(.v5)]),
        .testTarget(
            name: "PortingSwift6", dependencies: ["CoreBluetooth", "BluezKitProfiles"], path: "Tests/Porting/Swift6"),
    ],
    swiftLanguageModes: [.v6]
)

// Programs that tests and measurements run. Whoever builds the package to use it has no need of them, and `swift build`
// makes every executable of a root package: so the scripts, which need them, ask for them (scripts/lib.sh).
if Context.environment["BLUEZKIT_TOOLS"] != nil {
    package.targets += [
        // The app that tests of restoration kill and start again.
        .executableTarget(
            name: "restoration-probe", dependencies: ["CoreBluetooth", "BluezKit"], path: "Tests/Probe",
            swiftSettings: [.swiftLanguageMode(.v5)]),
        // A gateway's week, in two apps and a world around them.
        .executableTarget(
            name: "bluezkit-soak", dependencies: ["BluezKit", "BluezKitSimulator", "BluezDBus"], path: "Tests/Soak"),
        // Kills a program at its N-th system call.
        .executableTarget(name: "kill-at", path: "Tests/KillAt"),
        // An app that is measured.
        .executableTarget(name: "bluezkit-bench", dependencies: ["BluezKit"], path: "Benchmarks/bluezkit-bench"),
    ]
}

// Needs coverage and libFuzzer, and sees what is internal: `scripts/fuzz` builds it, nothing else does.
if Context.environment["BLUEZKIT_FUZZ"] != nil {
    package.targets.append(
        .executableTarget(
            name: "bluezkit-fuzz",
            dependencies: [
                "BluezKit", "BluezKitProfiles", "BluezKitRestore", "BluezKitSimulator", "CBluezDBus", "BluezDBus",
            ],
            path: "Tests/Fuzz", exclude: ["Corpus"]))
}

// What the next language mode has, for everything but apps' code, which is to compile as it stands.
for target in package.targets where target.type != .system && !target.name.hasPrefix("Porting") {
    target.swiftSettings =
        (target.swiftSettings ?? []) + [
            .enableUpcomingFeature("ExistentialAny"), .enableUpcomingFeature("InternalImportsByDefault"),
            .enableUpcomingFeature("MemberImportVisibility"),
        ]
}
