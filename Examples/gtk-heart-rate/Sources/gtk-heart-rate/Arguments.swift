/// What the command line says.
struct Arguments {
    static let help = """
        gtk-heart-rate: shows what a Bluetooth heart-rate sensor measures

        usage: gtk-heart-rate [OPTION]...

          --simulated  use simulated sensors: no adapter and no bluetoothd needed
          --connect    connect to the first sensor that is found
          --dark       prefer the dark theme
          --report     print what the window shows, one line for each change
          --help       show this help

        If it is killed, it continues with the same sensor when it is started again.
        """

    struct Wrong: Error { let sentence: String }

    var isSimulated = false
    var connects = false
    var isDark = false
    var reports = false
    var showsHelp = false

    init(_ words: some Sequence<String>) throws(Wrong) {
        for word in words {
            switch word {
            case "--simulated": isSimulated = true
            case "--connect": connects = true
            case "--dark": isDark = true
            case "--report": reports = true
            case "--help", "-h": showsHelp = true
            default: throw Wrong(sentence: "there is no option '\(word)'; --help lists them")
            }
        }
    }
}
