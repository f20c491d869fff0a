package import Foundation

extension JSONDecoder {
    /// `decode`, which traps with Swift 6.0 where a key is no valid string (swiftlang/swift-foundation#1043): it gets
    /// what an older parser has understood.
    package func decodeSafely<Value: Decodable>(_ type: Value.Type, from data: Data) throws -> Value {
        #if compiler(<6.1)
        let data = try Self.understood(data)
        #endif
        return try decode(type, from: data)
    }

    #if compiler(<6.1)
    private static func understood(_ data: Data) throws(DecodingError) -> Data {
        do { return try JSONSerialization.data(withJSONObject: JSONSerialization.jsonObject(with: data)) } catch {
            throw DecodingError.dataCorrupted(
                .init(codingPath: [], debugDescription: "The given data was not valid JSON.", underlyingError: error))
        }
    }
    #endif
}
