// What a package for several platforms may say that depends on nothing.
#if canImport(CoreBluetooth)
import CoreBluetooth
public let hasCoreBluetooth = CBManagerState.poweredOn == .poweredOn
#else
public let hasCoreBluetooth = false
#endif
