import Testing

@testable import BluezKit

@Suite struct LinuxVersionTests {
    @Test(
        "Linux' version is read from the kernel's release",
        arguments: [
            ("6.12.117+deb13-amd64", LinuxVersion(6, 12, 117)), ("6.1.0-50-amd64", LinuxVersion(6, 1, 0)),
            ("7.2.13-1-arch", LinuxVersion(7, 2, 13)), ("6.15", LinuxVersion(6, 15, 0)), ("6", nil), ("", nil),
            ("6.1.99999999999999999999", LinuxVersion(6, 1)), ("linux", nil),
        ])
    func release(_ text: String, _ version: LinuxVersion?) {
        #expect(LinuxVersion(release: text) == version)
    }

    @Test("the running kernel has a known version")
    func current() throws {
        #expect(try #require(LinuxVersion.current) >= LinuxVersion(3, 0))
    }
}
