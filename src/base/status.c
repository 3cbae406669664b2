#include "fsdp/status.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MESSAGE_BYTES = 4096 };

static struct {
    int rank;
    void (*end_all)(int code);
    void (*ask_to_speak)(void);
} process = {-1, NULL, NULL};

static char last_error[MESSAGE_BYTES];

const char *
fsdp_status_string(fsdp_status_t status)
{
    switch (status) {
#define CASE(name, text, code)                                                 \
    case name:                                                                 \
        return text;
        FSDP_STATUS_LIST(CASE)
#undef CASE
    }
    return "unknown status";
}

int
fsdp_status_exit_code(fsdp_status_t status)
{
    switch (status) {
#define CASE(name, text, code)                                                 \
    case name:                                                                 \
        return code;
        FSDP_STATUS_LIST(CASE)
#undef CASE
    }
    return FSDP_EXIT_FAULT;
}

fsdp_status_t
fsdp_error(fsdp_status_t status, const char *format, ...)
{
    /* The arguments may contain the last message, so it is kept till the end. */
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memcpy(last_error, text, strlen(text) + 1);
    return status;
}

const char *
fsdp_error_message(void)
{
    return last_error;
}

void
fsdp_set_process(int rank, void (*end_all)(int code))
{
    process.rank = rank;
    process.end_all = end_all;
}

void
fsdp_set_speaker(void (*ask)(void))
{
    process.ask_to_speak = ask;
}

/* One write, so that lines of several ranks do not mix: fprintf() writes a line
 * in pieces. */
static void
print_line(const char *kind, const char *text)
{
    char line[MESSAGE_BYTES + 64];
    snprintf(line, sizeof line, "fsdp: %s%s\n", kind, text);
    fflush(stdout);
    ssize_t written = write(STDERR_FILENO, line, strlen(line));
    (void)written; /* there is nobody left to tell */
}

static void
print_last_line(const char *text)
{
    char who[32] = "";
    if (process.rank >= 0)
        snprintf(who, sizeof who, "rank %d: ", process.rank);
    print_line(who, text);
}

void
fsdp_warn(const char *format, ...)
{
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    print_line("warning: ", text);
}

void
fsdp_print_error(void)
{
    print_line("", last_error);
}

/* Only the first to die speaks: if its way out fails in turn the process ends
 * on the spot, and other threads wait for the end. */
static void
enter_once(int code)
{
    static atomic_flag dying = ATOMIC_FLAG_INIT;
    static _Thread_local int dying_here;

    if (dying_here)
        _exit(code);
    dying_here = 1;
    while (atomic_flag_test_and_set(&dying))
        pause();
}

static _Noreturn void
die(int code, const char *text)
{
    enter_once(code);
    if (process.ask_to_speak != NULL)
        process.ask_to_speak();
    print_last_line(text);
    if (process.end_all != NULL)
        process.end_all(code);
    _exit(code);
}

void
fsdp_die(int code, const char *format, ...)
{
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length >= (int)sizeof text)
        memcpy(text + sizeof text - 4, "...", 4);
    die(code, text);
}

/* "src/base/memory.c" of a path that begins wherever the build was. */
static const char *
short_path(const char *file)
{
    const char *found = file, *next = file;
    while ((next = strstr(next, "src/")) != NULL)
        found = next++;
    return found;
}

void
fsdp_check_failed(const char *file, int line, const char *cond,
                  const char *format, ...)
{
    char message[MESSAGE_BYTES / 2], text[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    snprintf(text, sizeof text, "%s:%d: %s (check failed: %.1000s)",
             short_path(file), line, message, cond);
    die(FSDP_EXIT_FAULT, text);
}
