print("bluez-demo")
