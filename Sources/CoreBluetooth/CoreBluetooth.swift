// `import CoreBluetooth` compiles unchanged on Linux: everything is in BluezKit.
@_exported import BluezKit
