import CoreBluetooth
import Testing
