#define _GNU_SOURCE
#include "CDBus.h"

#include <stdlib.h>

const char *cdbus_getenv(const char *name) { return secure_getenv(name); }
