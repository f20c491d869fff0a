/// What a shell completes after `bluez-demo`, from the table of commands.
enum Completions: String, CaseIterable, Sendable {
    case bash, zsh, fish

    var script: String {
        switch self {
        case .bash: bash
        case .zsh: zsh
        case .fish: fish
        }
    }

    /// The commands of one word, and the first words of the others.
    private var first: [(name: String, summary: String)] {
        var found: [(name: String, summary: String)] = []
        for spec in CommandSpec.all {
            let name = spec.name.split(separator: " ").first.map(String.init) ?? spec.name
            guard !found.contains(where: { $0.name == name }) else { continue }
            found.append((name, name == spec.name ? spec.summary : family(name).joined(separator: ", ")))
        }
        return found
    }

    /// The second words after this one.
    private func family(_ first: String) -> [String] {
        CommandSpec.all.filter { $0.name.hasPrefix(first + " ") }.map { String($0.name.dropFirst(first.count + 1)) }
    }

    private var families: [String] { first.map(\.name).filter { !family($0).isEmpty } }

    /// Options before a command.
    private var general: [OptionSpec] { CommandSpec.common + [CommandSpec.version] }

    private var allOptions: [OptionSpec] { CommandSpec.all.flatMap(\.options) + general }

    /// Those whose value is a word of its own.
    private var withValue: Set<String> {
        Set(allOptions.filter { $0.value != nil && $0.defaultValue == nil }.map(\.name))
    }

    private func isFile(_ value: String?) -> Bool { ["FILE", "PATH"].contains(value ?? "") }
    private func takesFile(_ spec: CommandSpec) -> Bool { isFile(spec.operand) || spec.name == "simulate" }

    private func words(of spec: CommandSpec) -> [String] {
        spec.options.map(\.name) + (spec.name == "simulate" ? Scenario.all.map(\.name) : [])
    }

    // MARK: bash

    private var bash: String {
        let files = Set(allOptions.filter { isFile($0.value) }.map(\.name)).sorted()
        let cases = CommandSpec.all.map { spec in
            "        '\(spec.name) '*) words='\(words(of: spec).joined(separator: " "))'"
                + (takesFile(spec) ? " file=yes" : "") + " ;;"
        }
        let halves = families.map { "        '\($0) ') words='\(family($0).joined(separator: " "))' ;;" }
        let start = (first.map(\.name) + general.map(\.name)).joined(separator: " ")
        return """
            # bash completion for bluez-demo. Made by `bluez-demo help --completions bash`.
            _bluez_demo() {
                local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
                local command= words= file= i
                # An equals sign is a word of its own.
                [[ $current != = ]] || current=
                [[ $previous != = ]] || previous=${COMP_WORDS[COMP_CWORD-2]}
                local values=' \(withValue.sorted().joined(separator: " ")) '
                for ((i = 1; i < COMP_CWORD; i++)); do
                    case ${COMP_WORDS[i]} in
                        -*)
                            if [[ ${COMP_WORDS[i+1]} == = ]]; then ((i += 2))
                            elif [[ $values == *" ${COMP_WORDS[i]} "* ]]; then ((++i)); fi ;;
                        *) command+="${COMP_WORDS[i]} " ;;
                    esac
                done
                COMPREPLY=()
                case $previous in
                    \(files.joined(separator: " | "))) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
                esac
                [[ $values != *" $previous "* ]] || return
                case $command in
            \((halves + cases).joined(separator: "\n"))
                    '') words='\(start)' ;;
                esac
                mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
                if [[ -n $file && $current != -* ]]; then
                    compopt -o filenames 2>/dev/null
                    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$current")
                fi
            }
            complete -F _bluez_demo bluez-demo
            """
    }

    // MARK: zsh

    private func zshEscaped(_ text: String) -> String {
        text.map { "'\"[]:\\$`".contains($0) ? ($0 == "'" ? "'\\''" : "\\\($0)") : String($0) }.joined()
    }

    private func zshOption(_ option: OptionSpec) -> String {
        let about = (option.repeats ? "*" : "") + option.name
        guard let value = option.value else { return "'\(about)[\(zshEscaped(option.help))]'" }
        // A value that may be omitted comes after an equals sign alone, as otherwise the next word would be taken.
        let files = isFile(value) ? "_files" : ""
        let separator = option.defaultValue == nil ? "=" : "=-"
        return
            "'\(about)\(separator)[\(zshEscaped(option.help))]:\(option.defaultValue == nil ? "" : ":")\(value):\(files)'"
    }

    private var zsh: String {
        let cases = CommandSpec.all.map { spec in
            var arguments = spec.options.map(zshOption)
            if isFile(spec.operand) {
                arguments.append("'*:file:_files'")
            } else if spec.name == "simulate" {
                arguments += ["'1:scenario:(\(Scenario.all.map(\.name).joined(separator: " ")))'", "'*:file:_files'"]
            } else {
                arguments.append("'*: :'")
            }
            return "        '\(spec.name)') _arguments \(arguments.joined(separator: " ")) ;;"
        }
        let commands = first.map { "'\($0.name):\(zshEscaped($0.summary))'" }.joined(separator: "\n        ")
        let halves = families.map { "            '\($0) ') compadd \(family($0).joined(separator: " ")); return ;;" }
        return """
            #compdef bluez-demo
            # zsh completion for bluez-demo. Made by `bluez-demo help --completions zsh`.
            _bluez-demo() {
                local -a commands
                commands=(
                    \(commands)
                )
                # Options may stand before a command, and between its words.
                local command= word
                local -i at=1
                for word in 1 2; do
                    (( at++ ))
                    while (( at < CURRENT )) && [[ ${words[at]} == -* ]]; do
                        [[ ${words[at]} != --adapter ]] || (( at++ ))
                        (( at++ ))
                    done
                    (( at <= CURRENT )) || return
                    if (( at == CURRENT )); then
                        case "$command " in
                            ' ')
                                _describe -t commands command commands
                                _arguments \(general.map(zshOption).joined(separator: " ")) ;;
            \(halves.joined(separator: "\n"))
                        esac
                        return
                    fi
                    command+="${command:+ }${words[at]}"
                    [[ $command == (\(families.joined(separator: "|"))) ]] || break
                done
                (( CURRENT -= at - 1 ))
                shift $(( at - 1 )) words
                case $command in
            \(cases.joined(separator: "\n"))
                esac
            }
            _bluez-demo "$@"
            """
    }

    // MARK: fish

    private func fishQuoted(_ text: String) -> String {
        "'" + text.map { $0 == "'" || $0 == "\\" ? "\\\($0)" : String($0) }.joined() + "'"
    }

    private func fishOption(_ option: OptionSpec, _ condition: String) -> String {
        let value = option.value == nil || option.defaultValue != nil ? "" : isFile(option.value) ? " -r -F" : " -x"
        return
            "complete -c bluez-demo -n '\(condition)' -l \(option.name.dropFirst(2))\(value) -d \(fishQuoted(option.help))"
    }

    private var fish: String {
        var lines = [
            """
            # fish completion for bluez-demo. Made by `bluez-demo help --completions fish`.
            function __bluez_demo_is --description 'Whether these are the words of the command'
                set -l command
                set -l skips 0
                for word in (commandline -opc)[2..-1]
                    if test $skips = 1
                        set skips 0
                        continue
                    end
                    switch $word
                        case \(withValue.sorted().joined(separator: " "))
                            set skips 1
                        case '-*'
                        case '*'
                            set -a command $word
                            contains -- "$command" \(families.joined(separator: " ")); or break
                    end
                end
                test "$command" = "$argv"
            end
            complete -c bluez-demo -f
            """
        ]
        let none = "__bluez_demo_is"
        lines += first.map { "complete -c bluez-demo -n \(none) -a \($0.name) -d \(fishQuoted($0.summary))" }
        lines += general.map { fishOption($0, none) }
        for name in families {
            lines.append("complete -c bluez-demo -n '\(none) \(name)' -a '\(family(name).joined(separator: " "))'")
        }
        for spec in CommandSpec.all {
            let condition = none + " " + spec.name
            lines += spec.options.map { fishOption($0, condition) }
            if takesFile(spec) { lines.append("complete -c bluez-demo -n '\(condition)' -F") }
            if spec.name == "simulate" {
                lines += Scenario.all.map {
                    "complete -c bluez-demo -n '\(condition)' -a \($0.name) -d \(fishQuoted($0.summary))"
                }
            }
        }
        return lines.joined(separator: "\n")
    }
}
