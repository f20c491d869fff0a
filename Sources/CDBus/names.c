// Paths, names and signatures of messages that arrive: the rules of the D-Bus specification, "Valid Names" and "Valid
// Signatures", as strictly as libdbus applies them. libdbus checks a signature with lists under a lock, which was most
// of what checking a message cost.
#include "CDBus.h"

enum { LETTER = 1, DIGIT = 2, HYPHEN = 4, NAME = LETTER | DIGIT };

static const uint8_t classes[256] = {
    ['A' ... 'Z'] = LETTER, ['a' ... 'z'] = LETTER, ['_'] = LETTER, ['0' ... '9'] = DIGIT, ['-'] = HYPHEN};

static bool is(unsigned allowed, char character) { return classes[(uint8_t)character] & allowed; }

size_t cdbus_path_length(const char *text) {
    const char *end = text;
    if (text[0] == '/' && !text[1]) return 1;
    while (*end == '/') {
        if (!is(NAME, *++end)) return 0;
        while (is(NAME, *end)) end++;
    }
    return *end ? 0 : (size_t)(end - text);
}

/// The length of a name that ends at `end`; 0: it is not valid.
static size_t length_of_name(const char *text, const char *end) {
    size_t length = (size_t)(end - text);
    return *end || length > DBUS_MAXIMUM_NAME_LENGTH ? 0 : length;
}

/// The length of elements with dots between them, the first character of each one of `initial`, the others of `inner`.
static size_t length_of_elements(const char *text, unsigned initial, unsigned inner, bool has_dots) {
    bool is_dotted = false;
    for (const char *end = text;; end++) {
        if (!is(initial, *end)) return 0;
        while (is(inner, *end)) end++;
        if (*end != '.') return is_dotted == has_dots ? length_of_name(text, end) : 0;
        is_dotted = true;
    }
}

size_t cdbus_interface_length(const char *text) { return length_of_elements(text, LETTER, NAME, true); }

size_t cdbus_member_length(const char *text) { return length_of_elements(text, LETTER, NAME, false); }

size_t cdbus_bus_name_length(const char *text) {
    if (text[0] != ':') return length_of_elements(text, LETTER | HYPHEN, NAME | HYPHEN, true);
    const char *end = text + 1;
    while (is(NAME | HYPHEN, *end == '.' ? end[1] : *end)) end += *end == '.' ? 2 : 1;
    return length_of_name(text, end);
}

/// The end of one complete type; NULL: there is none. `arrays`: directly around it; `structs`, `entries`: all around it.
static const char *end_of_type(const char *type, int arrays, int structs, int entries) {
    switch (*type) {
        case 'y': case 'b': case 'n': case 'q': case 'i': case 'u': case 'x': case 't': case 'd': case 'h': case 's':
        case 'o': case 'g': case 'v': return type + 1;
        case 'a':
            if (arrays == DBUS_MAXIMUM_TYPE_RECURSION_DEPTH) return NULL;
            if (*++type != '{') return end_of_type(type, arrays + 1, structs, entries);
            // A key, which is no container, and a value.
            if (entries == DBUS_MAXIMUM_TYPE_RECURSION_DEPTH || strchr("av({", *++type)) return NULL;
            if (!(type = end_of_type(type, 0, structs, entries + 1))) return NULL;
            type = end_of_type(type, 0, structs, entries + 1);
            return type && *type == '}' ? type + 1 : NULL;
        case '(':
            if (structs == DBUS_MAXIMUM_TYPE_RECURSION_DEPTH || *++type == ')') return NULL;
            while (type && *type != ')') type = end_of_type(type, 0, structs + 1, entries);
            return type ? type + 1 : NULL;
        default: return NULL;
    }
}

bool cdbus_is_signature(const char *text, size_t length) {
    const char *end = text;
    while (end && *end) end = end_of_type(end, 0, 0, 0);
    return end == text + length && length <= DBUS_MAXIMUM_SIGNATURE_LENGTH;
}
