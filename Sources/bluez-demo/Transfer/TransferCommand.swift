import Foundation

/// `transfer send` and `transfer receive`.
enum TransferCommand {
    /// The command for one end; which role that is depends on the way.
    static func make(
        _ options: TransferOptions, common: CommonOptions, output: Output
    ) throws(CardFile.Failure) -> any Command {
        let end: any TransferEnd
        if options.isSending {
            end = TransferSender(try SentFile(options.file), confirmsEnd: options.isCentral)
        } else {
            try PartialFile.checkWritable(options.file)
            end = TransferReceiver(options.file, limit: options.maximumSize, asks: options.isCentral)
        }
        return options.isCentral
            ? TransferCentralCommand(options, end, common: common, output: output)
            : TransferPeripheralCommand(options, end, common: common, output: output)
    }
}
