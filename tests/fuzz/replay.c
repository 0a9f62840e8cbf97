/* SPDX-License-Identifier: Apache-2.0 */
/* replay.c - calls a fuzz target with every file of a folder, where there is no libFuzzer: an input
 * that was once a fault stays a test for every compiler.
 * usage: fuzz_TARGET FOLDER */
#include "fuzz/fuzz.h"

#include <dirent.h>

static void replay(const char *folder, const char *name)
{
    enum { MOST = 1 << 20 };
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(MOST);
    MUST(file && data);
    size_t size = fread(data, 1, MOST, file);
    fclose(file);
    /* Exactly as large as it is, for the sanitizers. */
    uint8_t *input = malloc(size ? size : 1);
    MUST(input);
    memcpy(input, data, size);
    LLVMFuzzerTestOneInput(input, size);
    free(input);
    free(data);
}

int main(int count, char **words)
{
    DIR *folder = count == 2 ? opendir(words[1]) : NULL;
    if (!folder) {
        fprintf(stderr, "usage: %s FOLDER\n", words[0]);
        return 2;
    }
    int files = 0;
    for (const struct dirent *entry; (entry = readdir(folder)); files++) {
        if (*entry->d_name == '.') files--;
        else replay(words[1], entry->d_name);
    }
    closedir(folder);
    printf("%d inputs\n", files);
    return files == 0;
}
