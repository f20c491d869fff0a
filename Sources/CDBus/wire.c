// The receive side of D-Bus: what a message must be before anything looks into it, and how it is read in place.
// The rules are those of the D-Bus specification, "Message Protocol", as strictly as libdbus applies them: each message
// is checked completely when it has arrived, so that reading it later has nothing to check but types.
#define _GNU_SOURCE
#include "CDBus.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MAX_DEPTH = 2 * DBUS_MAXIMUM_TYPE_RECURSION_DEPTH,  // arrays and structures, and what variants add
    FIXED_HEADER = 16,
};

static uint32_t aligned(uint32_t position, uint32_t alignment) { return (position + alignment - 1) & ~(alignment - 1); }

// receiving ---------------------------------------------------------------------------------------------------

/// Notes the descriptors that came with a read.
static int take_descriptors(struct msghdr *header, int *fds) {
    int count = 0;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(header); part; part = CMSG_NXTHDR(header, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        // There is room for as many as the kernel lets pass at a time.
        int received = (int)((part->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds + count, CMSG_DATA(part), (size_t)received * sizeof(int));
        count += received;
    }
    return count;
}

ssize_t cdbus_receive(int fd, void *buffer, size_t size, int *_Nullable fds, int *count,
                      bool *some_lost) {
    union {
        struct cmsghdr alignment;
        char space[CMSG_SPACE(CDBUS_MAX_DESCRIPTORS * sizeof(int))];
    } control;
    struct iovec data = {.iov_base = buffer, .iov_len = size};
    struct msghdr header = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = fds ? &control : NULL,
        .msg_controllen = fds ? sizeof control : 0};
    ssize_t received;
    do received = recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (received < 0 && errno == EINTR);
    *count = received < 0 || !fds ? 0 : take_descriptors(&header, fds);
    *some_lost = received >= 0 && header.msg_flags & MSG_CTRUNC;
    return received < 0 ? -errno : received;
}

// types -------------------------------------------------------------------------------------------------------

static uint32_t alignment_of(char type) {
    switch (type) {
        case 'n': case 'q': return 2;
        case 'b': case 'i': case 'u': case 'h': case 's': case 'o': case 'a': return 4;
        case 'x': case 't': case 'd': case '(': case '{': return 8;
        default: return 1;
    }
}

/// The size of a type whose values all have the same; it is also the alignment. 0: it is another one.
static uint32_t fixed_size(char type) {
    switch (type) {
        case 'y': case 'n': case 'q': case 'b': case 'i': case 'u': case 'h': case 'x': case 't': case 'd':
            return alignment_of(type);
        default: return 0;
    }
}

const char *cdbus_type_end(const char *type) {
    int depth = 0;
    while (*type == 'a') type++;
    do {
        if (*type == '(' || *type == '{') depth++;
        if (*type == ')' || *type == '}') depth--;
        type++;
    } while (depth);
    return type;
}

// checking ----------------------------------------------------------------------------------------------------

static bool is_zero(const cdbus_message_t *message, uint32_t from, uint32_t to) {
    for (; from < to; from++)
        if (message->start[from]) return false;
    return true;
}

/// Whether `length` bytes and a zero follow. (`position` is never after `end`.)
static bool has_text(const cdbus_message_t *message, uint32_t position, uint32_t end, uint32_t length) {
    return length < end - position && message->start[position + length] == 0;
}

static bool is_utf8(const char *text, uint32_t length) {
    uint32_t i = 0;
    for (uint64_t word; i + sizeof word <= length; i += sizeof word) {
        memcpy(&word, text + i, sizeof word);
        // No byte has the highest bit or is zero.
        if ((word | (word - 0x0101010101010101)) & 0x8080808080808080) break;
    }
    for (; i < length && (signed char)text[i] > 0; i++) {}  // ASCII
    return i == length || (strlen(text + i) == length - i && dbus_validate_utf8(text + i, NULL));
}

/// A signature, and where the types of its arrays end, as far as that has been looked up: an array of arrays meets the same one
/// with each of its elements.
typedef struct {
    const char *start;
    uint8_t ends[DBUS_MAXIMUM_SIGNATURE_LENGTH];
} signature_t;

static const char *array_end(signature_t *signature, const char *type) {
    uint8_t *end = &signature->ends[type - signature->start];
    if (!*end) *end = (uint8_t)(cdbus_type_end(type) - signature->start);
    return signature->start + *end;
}

static uint32_t check(const cdbus_message_t *message, signature_t *signature, const char **type, uint32_t position, uint32_t end,
                      int depth);

static uint32_t check_array(const cdbus_message_t *message, signature_t *signature, const char *element, uint32_t position,
                            uint32_t end, int depth) {
    if (end - position < 4) return 0;
    uint32_t length = cdbus_load32(message->start + position, message->is_swapped);
    uint32_t first = aligned(position + 4, alignment_of(*element)), size = fixed_size(*element);
    if (first > end || !is_zero(message, position + 4, first)) return 0;
    if (length > end - first || length > DBUS_MAXIMUM_ARRAY_LENGTH) return 0;
    end = first + length;
    if (size) {
        if (length % size) return 0;
        if (*element != 'b') return end;
    } else if (length && depth >= MAX_DEPTH) {
        return 0;
    }
    for (position = first; position < end;) {
        const char *type = element;
        if (!(position = check(message, signature, &type, position, end, depth + 1))) return 0;
    }
    return position;
}

static uint32_t check_variant(const cdbus_message_t *message, uint32_t position, uint32_t end, int depth) {
    uint32_t length = message->start[position++];
    if (!has_text(message, position, end, length)) return 0;
    const char *type = (const char *)message->start + position;
    if (!length || !cdbus_is_signature(type, length) || depth >= MAX_DEPTH) return 0;
    signature_t signature;
    signature.start = type;
    memset(signature.ends, 0, length);
    position = check(message, &signature, &type, position + length + 1, end, depth + 1);
    return *type ? 0 : position;
}

static uint32_t check_text(const cdbus_message_t *message, char type, uint32_t position, uint32_t end) {
    if (end - position < 4) return 0;
    uint32_t length = cdbus_load32(message->start + position, message->is_swapped);
    position += 4;
    if (!has_text(message, position, end, length)) return 0;
    const char *text = (const char *)message->start + position;
    bool is_valid = type == 's' ? is_utf8(text, length) : length && cdbus_path_length(text) == length;
    return is_valid ? position + length + 1 : 0;
}

/// Checks the value at `position`, and whether it ends before `end`. Returns where, and sets `type` to the next type;
/// 0: it is invalid.
static uint32_t check(const cdbus_message_t *message, signature_t *signature, const char **type, uint32_t position, uint32_t end,
                      int depth) {
    char first = **type;
    uint32_t start = aligned(position, alignment_of(first)), size = fixed_size(first);
    if (start >= end || !is_zero(message, position, start)) return 0;
    if (size) {
        ++*type;
        if (end - start < size) return 0;
        if (first == 'b' && cdbus_load32(message->start + start, message->is_swapped) > 1) return 0;
        return start + size;
    }
    switch (first) {
        case 's':
        case 'o': ++*type; return check_text(message, first, start, end);
        case 'v': ++*type; return check_variant(message, start, end, depth);
        case 'a': {
            const char *element = *type + 1;
            *type = array_end(signature, *type);
            return check_array(message, signature, element, start, end, depth);
        }
        case 'g': {
            uint32_t length = message->start[start++];
            ++*type;
            if (!has_text(message, start, end, length)) return 0;
            return cdbus_is_signature((const char *)message->start + start, length) ? start + length + 1 : 0;
        }
        case '(':
        case '{':
            if (depth >= MAX_DEPTH) return 0;
            for (++*type; **type != ')' && **type != '}';)
                if (!(start = check(message, signature, type, start, end, depth + 1))) return 0;
            ++*type;
            return start;
        default: return 0;
    }
}

// the header --------------------------------------------------------------------------------------------------

ssize_t cdbus_message_length(const uint8_t *bytes, size_t count) {
    if (count < FIXED_HEADER) return 0;
    if (bytes[0] != 'l' && bytes[0] != 'B') return -EBADMSG;
    bool is_swapped = cdbus_is_swapped(bytes);
    uint32_t fields = cdbus_load32(bytes + 12, is_swapped), body = cdbus_load32(bytes + 4, is_swapped);
    if (fields > DBUS_MAXIMUM_ARRAY_LENGTH || body > DBUS_MAXIMUM_MESSAGE_LENGTH) return -EBADMSG;
    uint32_t length = aligned(FIXED_HEADER + fields, 8) + body;
    return length > DBUS_MAXIMUM_MESSAGE_LENGTH ? -EBADMSG : (ssize_t)length;
}

/// Notes the header field that is a structure at `field`: its code and a variant. It has been checked as any value is.
static bool note_field(cdbus_message_t *message, uint32_t field, unsigned *seen) {
    static const char types[] = {0, 'o', 's', 's', 's', 'u', 's', 's', 'g', 'u', 'o'};
    const uint8_t *start = message->start;
    unsigned code = start[field];
    if (code == DBUS_HEADER_FIELD_INVALID) return false;
    if (code >= sizeof types) return true;  // of a later version of D-Bus
    if (start[field + 1] != 1 || start[field + 2] != types[code] || *seen & 1u << code) return false;
    *seen |= 1u << code;
    uint32_t position = field + 4;  // after code, length, type and zero
    // Within the header, also for a signature, because fields and the end of the header are at multiples of 8.
    uint32_t number = cdbus_load32(start + position, message->is_swapped);
    const char *text = (const char *)start + position + 4;
    // So that a name with a zero inside is none.
    size_t length = number ? number : SIZE_MAX;
    switch (code) {
        case DBUS_HEADER_FIELD_PATH:
            message->path = text;
            return strcmp(text, DBUS_PATH_LOCAL) != 0;
        case DBUS_HEADER_FIELD_INTERFACE:
            message->interface = text;
            return strcmp(text, DBUS_INTERFACE_LOCAL) != 0 && cdbus_interface_length(text) == length;
        case DBUS_HEADER_FIELD_MEMBER: message->member = text; return cdbus_member_length(text) == length;
        case DBUS_HEADER_FIELD_ERROR_NAME: message->error_name = text; return cdbus_interface_length(text) == length;
        case DBUS_HEADER_FIELD_REPLY_SERIAL: message->reply_serial = number; return number != 0;
        case DBUS_HEADER_FIELD_DESTINATION:
            message->destination = text;
            return cdbus_bus_name_length(text) == length;
        case DBUS_HEADER_FIELD_SENDER: message->sender = text; return cdbus_bus_name_length(text) == length;
        case DBUS_HEADER_FIELD_SIGNATURE: message->signature = (const char *)start + position + 1; return true;
        case DBUS_HEADER_FIELD_UNIX_FDS: message->descriptors = number; return true;
        default: return true;
    }
}

static bool has_what_it_needs(const cdbus_message_t *message) {
    switch (message->type) {
        case DBUS_MESSAGE_TYPE_INVALID: return false;
        case DBUS_MESSAGE_TYPE_SIGNAL: return message->interface && message->path && message->member;
        case DBUS_MESSAGE_TYPE_METHOD_CALL: return message->path && message->member;
        case DBUS_MESSAGE_TYPE_ERROR: return message->error_name && message->reply_serial;
        case DBUS_MESSAGE_TYPE_METHOD_RETURN: return message->reply_serial;
        default: return true;  // of a later version of D-Bus
    }
}

int cdbus_message_parse(const uint8_t *start, size_t length, cdbus_message_t *message) {
    uint32_t position = FIXED_HEADER;
    unsigned seen = 0;
    *message = (cdbus_message_t){.start = start, .length = (uint32_t)length, .signature = ""};
    message->is_swapped = cdbus_is_swapped(start);
    message->type = start[1];
    message->flags = start[2];
    message->serial = cdbus_load32(start + 8, message->is_swapped);
    uint32_t fields_end = FIXED_HEADER + cdbus_load32(start + 12, message->is_swapped);
    uint32_t body = aligned(fields_end, 8);
    if (start[3] != DBUS_MAJOR_PROTOCOL_VERSION || message->serial == 0) return -EBADMSG;

    while (position < fields_end) {
        const char *type = "(yv)";
        uint32_t field = aligned(position, 8);
        // The header is an array, so these are its elements, and none has an array but within its variant.
        position = check(message, NULL, &type, position, fields_end, 1);
        if (!position || !note_field(message, field, &seen)) return -EBADMSG;
    }
    if (!is_zero(message, fields_end, body) || !has_what_it_needs(message)) return -EBADMSG;

    message->body = position = body;
    signature_t signature;
    signature.start = message->signature;
    memset(signature.ends, 0, strlen(signature.start));
    for (const char *type = signature.start; *type;)
        if (!(position = check(message, &signature, &type, position, message->length, 0))) return -EBADMSG;
    return position == message->length ? 0 : -EBADMSG;
}

// reading -----------------------------------------------------------------------------------------------------

/// The end of the value at `position`, which has been checked. Sets `type` to the next type.
static uint32_t end_of(const cdbus_reader_t *reader, const char **type, uint32_t position) {
    char first = **type;
    uint32_t start = aligned(position, alignment_of(first)), size = fixed_size(first);
    const uint8_t *bytes = reader->start;
    if (size) {
        ++*type;
        return start + size;
    }
    switch (first) {
        case 's':
        case 'o': ++*type; return start + 4 + cdbus_load32(bytes + start, reader->is_swapped) + 1;
        case 'g': ++*type; return start + 1 + bytes[start] + 1;
        case 'v': {
            const char *inside = (const char *)bytes + start + 1;
            ++*type;
            return end_of(reader, &inside, start + 1 + bytes[start] + 1);
        }
        case 'a': {
            uint32_t element = aligned(start + 4, alignment_of((*type)[1]));
            *type = cdbus_type_end(*type);
            return element + cdbus_load32(bytes + start, reader->is_swapped);
        }
        default:  // a structure, or an entry of a dictionary
            for (++*type; **type != ')' && **type != '}';) start = end_of(reader, type, start);
            ++*type;
            return start;
    }
}

void cdbus_reader_next(cdbus_reader_t *reader) {
    if (cdbus_reader_type(reader) == DBUS_TYPE_INVALID) return;
    const char *type = reader->type;
    reader->position = end_of(reader, &type, reader->position);
    if (!reader->is_array) reader->type = type;
}

cdbus_reader_t cdbus_reader_enter(const cdbus_reader_t *reader) {
    uint32_t start = aligned(reader->position, alignment_of(*reader->type));
    cdbus_reader_t inner = *reader;
    inner.is_array = *reader->type == 'a';
    switch (*reader->type) {
        case 'v':
            inner.type = (const char *)reader->start + start + 1;
            inner.position = start + 1 + reader->start[start] + 1;
            break;
        case 'a':
            inner.type++;
            inner.position = aligned(start + 4, alignment_of(*inner.type));
            inner.end = inner.position + cdbus_load32(reader->start + start, reader->is_swapped);
            break;
        default:
            inner.type++;
            inner.position = start;
    }
    return inner;
}

void cdbus_reader_leave(cdbus_reader_t *reader, cdbus_reader_t *inner) {
    const char *type = reader->type;
    if (inner->is_array) {
        inner->position = inner->end;
    } else {
        while (cdbus_reader_type(inner) != DBUS_TYPE_INVALID) cdbus_reader_next(inner);
    }
    reader->position = inner->position;
    if (reader->is_array) return;
    reader->type = *type == 'v' ? type + 1 : *type == 'a' ? cdbus_type_end(type) : inner->type + 1;
}

const void *cdbus_reader_value(cdbus_reader_t *reader, uint32_t *length) {
    char type = *reader->type;
    uint32_t start = aligned(reader->position, alignment_of(type));
    const uint8_t *bytes = reader->start + start;
    switch (type) {
        case 's':
        case 'o':
            *length = cdbus_load32(bytes, reader->is_swapped);
            bytes += 4;
            reader->position = start + 4 + *length + 1;
            break;
        case 'g':
            *length = *bytes++;
            reader->position = start + 1 + *length + 1;
            break;
        case 'a':  // of bytes
            *length = cdbus_load32(bytes, reader->is_swapped);
            bytes += 4;
            reader->position = start + 4 + *length;
            break;
        default:
            *length = fixed_size(type);
            reader->position = start + *length;
    }
    if (!reader->is_array) reader->type += type == 'a' ? 2 : 1;
    return bytes;
}
