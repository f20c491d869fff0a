// Typical code of a package for several platforms that has no dependencies.
#if canImport(CoreBluetooth)
import CoreBluetooth
public let hasCoreBluetooth = CBManagerState.poweredOn == .poweredOn
#else
public let hasCoreBluetooth = false
#endif
