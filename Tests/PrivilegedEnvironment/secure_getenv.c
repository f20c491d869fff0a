#include "PrivilegedEnvironment.h"

#include <stddef.h>

char *secure_getenv(const char *name) {
    (void)name;
    return NULL;
}
