// Fails writes and syncs of a ledger on demand: loaded in front of the C library with LD_PRELOAD.
//
// FAILING names a control file. While it holds "write NUMBER" or "sync NUMBER", such calls on files whose path contains
// "ledger.db" fail with that errno. Everything else passes.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int fails(int fd, const char *kind) {
    char link[64], path[4096], text[64], word[16];
    const char *control = getenv("FAILING");
    if (!control) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    if (!strstr(path, "ledger.db")) return 0;
    int file = open(control, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0) return 0;
    text[length] = 0;
    int number = 0;
    if (sscanf(text, "%15s %d", word, &number) != 2 || strcmp(word, kind)) return 0;
    errno = number;
    return 1;
}

// The C library's own function of this name.
#define NEXT(name) static __typeof__(&name) next; if (!next) next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    NEXT(pwrite64);
    return fails(fd, "write") ? -1 : next(fd, bytes, count, at);
}

int fdatasync(int fd) {
    NEXT(fdatasync);
    return fails(fd, "sync") ? -1 : next(fd);
}

int fsync(int fd) {
    NEXT(fsync);
    return fails(fd, "sync") ? -1 : next(fd);
}
