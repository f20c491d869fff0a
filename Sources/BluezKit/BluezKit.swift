// Apple's module makes Foundation and Dispatch visible to every file that imports it, and many rely on that (MOD-1).
@_exported import Dispatch
@_exported import Foundation
