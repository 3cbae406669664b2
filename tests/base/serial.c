#include "serial.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fsdp/memory.h"
#include "fsdp/status.h"

int
serial_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_NORMAL);
    int run = srunner_ntests_run(runner);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);

    long left = failed == 0 ? fsdp_memory_live_blocks() : 0;
    if (left != 0)
        fprintf(stderr, "%ld blocks of memory were not freed\n", left);
    return run > 0 && failed == 0 && left == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static _Noreturn void
be_child(void (*body)(void), int out, int err)
{
    fsdp_set_process(-1, NULL);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    close(out);
    close(err);
    body();
    _exit(0);
}

static void
read_all(int from, char *text, size_t size)
{
    size_t length = 0;
    ssize_t n;
    while ((n = read(from, text + length, size - 1 - length)) > 0)
        length += (size_t)n;
    text[length] = '\0';
}

/* stderr is a socket that keeps the borders between writes. */
static void
read_writes(int from, ending_t *ending)
{
    size_t length = 0;
    ssize_t n;
    while ((n = recv(from, ending->said + length,
                     sizeof ending->said - 1 - length, 0)) > 0) {
        length += (size_t)n;
        ending->writes++;
    }
    ending->said[length] = '\0';
}

ending_t
serial_ending_of(void (*body)(void))
{
    ending_t ending = {0};
    int out[2], err[2], status = 0;
    ck_assert(pipe(out) == 0);
    ck_assert(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, err) == 0);
    fflush(stdout);
    pid_t pid = fork();
    ck_assert(pid >= 0);
    if (pid == 0)
        be_child(body, out[1], err[1]);
    close(out[1]);
    close(err[1]);
    read_writes(err[0], &ending);
    read_all(out[0], ending.printed, sizeof ending.printed);
    close(out[0]);
    close(err[0]);
    ck_assert(waitpid(pid, &status, 0) == pid);
    ending.status =
        WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return ending;
}

bool
serial_has_sanitizer(void)
{
#if defined(__SANITIZE_ADDRESS__)
    return true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
    return true;
#endif
#endif
    return false;
}
