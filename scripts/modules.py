"""The modules of a finished build, for tools of the compiler. Imported by scripts/api-check, scripts/check-snippets and scripts/docs."""

import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
C_MODULES = ('CBluezDBus', 'CBluezL2CAP', 'CCoreBluetooth')


def output(*command):
    return subprocess.run(
        command, cwd=ROOT, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True).stdout


def bin_path():
    """Where `swift build` puts its products."""
    return pathlib.Path(output('swift', 'build', '--show-bin-path').strip())


def search_flags(built):
    """With these the compiler finds the modules in a directory of a build."""
    flags = ['-I', str(built / 'Modules'), '-I', 'Sources/CDBusSystem', '-I', 'Sources/CGLibSystem',
             *output('pkg-config', '--cflags-only-I', 'dbus-1', 'glib-2.0').split()]
    for module in C_MODULES:
        flags += ['-Xcc', f'-fmodule-map-file={built.resolve()}/{module}.build/module.modulemap']
    return flags


def extract_symbols(built, modules, directory, *options):
    """Writes the public symbols of each module to a directory: MODULE.symbols.json, and MODULE@OTHER.symbols.json with what it
    adds to types of others. Returns the files of each module. options: of `swift symbolgraph-extract`."""
    target = json.loads(output('swift', '-print-target-info'))['target']['triple']
    files = {}
    for module in modules:
        folder = pathlib.Path(directory, module)
        folder.mkdir(parents=True)
        output('swift', 'symbolgraph-extract', '-module-name', module, *search_flags(built), '-sdk', '/', '-target', target,
               '-minimum-access-level', 'public', '-skip-synthesized-members', *options,
               '-output-dir', str(folder))
        files[module] = sorted(folder.iterdir())
    return files
