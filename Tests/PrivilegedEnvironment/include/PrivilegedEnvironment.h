// Loaded before the C library (LD_PRELOAD), this makes a program see its environment as one does that has more
// privileges than the user who started it: secure_getenv(3) says that there is nothing. The kernel itself makes a program
// such a one only with the help of root.
char *secure_getenv(const char *name);
