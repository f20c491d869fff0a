import CoreBluetooth

extension PeripheralDelegate {
    func peripheralDidUpdateName(_ peripheral: CBPeripheral) { updateHandle() }

    func peripheral(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService]) {
        let invalid = services(invalidatedServices) ?? []
        for service in invalidatedServices {
            var gone: [CBAttribute] = [service]
            for characteristic in service.characteristics ?? [] {
                gone.append(characteristic)
                gone += characteristic.descriptors ?? []
            }
            for attribute in gone { invalidate(attribute) }
        }
        send(changes: invalid)
    }

    func peripheral(_ peripheral: CBPeripheral, didReadRSSI RSSI: NSNumber, error: (any Error)?) {
        answer(.rssi, nil, error) { .rssi(RSSI.intValue) }
    }

    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
        answer(.services, nil, error) { .services(services(peripheral.services) ?? []) }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverIncludedServicesFor service: CBService, error: (any Error)?
    ) {
        answer(.includedServices, service, error) { .services(services(service.includedServices) ?? []) }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) {
        answer(.characteristics, service, error) { .characteristics(characteristics(service) ?? []) }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverDescriptorsFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        answer(.descriptors, characteristic, error) { .descriptors(descriptors(characteristic) ?? []) }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        let value = characteristic.value ?? Data()
        if error == nil { send(value, of: characteristic) }
        answer(.value, characteristic, error) { .data(value) }
    }

    func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor descriptor: CBDescriptor, error: (any Error)?) {
        answer(.descriptorValue, descriptor, error) { .value(Descriptor.Value(descriptor.value)) }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        answer(.written, characteristic, error) { .done }
    }

    func peripheral(_ peripheral: CBPeripheral, didWriteValueFor descriptor: CBDescriptor, error: (any Error)?) {
        answer(.descriptorWritten, descriptor, error) { .done }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        answer(.notificationState, characteristic, error) { .done }
        if !characteristic.isNotifying { notificationsEnded(characteristic) }
    }

    func peripheralIsReady(toSendWriteWithoutResponse peripheral: CBPeripheral) {
        retry()
    }

    func peripheral(_ peripheral: CBPeripheral, didOpen channel: CBL2CAPChannel?, error: (any Error)?) {
        let opened = channel.flatMap { open($0) }
        answer(.channel, nil, opened == nil ? error ?? CBError(.unknown) : nil) { opened.map { .channel($0) } ?? .done }
    }
}
