// Apple's module makes Foundation and Dispatch visible to every file that imports it, and many rely on that (MOD-1).
@_exported public import Dispatch
@_exported public import Foundation
