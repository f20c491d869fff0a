import Bystander
import CoreBluetooth

@main
final class Consumer: NSObject, CBCentralManagerDelegate {
    static func main() {
        let consumer = Consumer()
        let central = CBCentralManager(delegate: consumer, queue: nil)
        withExtendedLifetime((consumer, central)) { dispatchMain() }
    }

    func centralManagerDidUpdateState(_ central: CBCentralManager) {
        print("\(CBUUID(string: "180D")): state \(central.state.rawValue)")
        precondition(!hasCoreBluetooth)
        exit(0)
    }
}
