#include "tokenizer_file.h"

#include <stdio.h>
#include <unistd.h>

#include "mck.h"

char file_name[64];

void
put_file(const char *text)
{
    FILE *file = fopen(file_name, "wb");
    ck_assert(file != NULL);
    fputs(text, file);
    fclose(file);
}

void
set_up(void)
{
    snprintf(file_name, sizeof file_name, "/tmp/fsdp-tokenizer-%ld",
             (long)getpid());
}

void
tear_down(void)
{
    unlink(file_name);
}
