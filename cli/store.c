/* store.c - the results of a run into files: all of them, or none. */
#include "store.h"

#include <stdlib.h>
#include <string.h>

#include "npy.h"
#include "outfile.h"
#include "places.h"

enum { FILES = 7 };

/* What goes where; path NULL = not wanted. The last two are no tensors. */
enum { DSINKS = FILES - 2, TRACE = FILES - 1 };

struct target {
    const char *flag, *path;
    enum tensor tensor;
};

static void list_targets(const struct options *o, struct target targets[FILES])
{
    const struct target all[FILES] = {
        { "--out", o->out, TENSOR_OUT },
        { "--lse", o->lse, TENSOR_LSE },
        { "--dq", o->dq, TENSOR_DQ },
        { "--dk", o->dk, TENSOR_DK },
        { "--dv", o->dv, TENSOR_DV },
        [DSINKS] = { "--dsinks", o->dsinks, TENSOR_COUNT },
        [TRACE] = { "--trace", o->trace, TENSOR_COUNT },
    };
    memcpy(targets, all, sizeof all);
}

static int check_targets(const struct options *o, const char *bitmap)
{
    struct target targets[FILES];
    const struct {
        const char *flag, *path;
    } inputs[] = { { "--q", o->q },
                   { "--k", o->k },
                   { "--v", o->v },
                   { "--dout", o->dout },
                   { "--dlse", o->dlse },
                   { "--order", places_is_file(o->trial.order) ? o->trial.order : NULL },
                   { "--sinks", o->trial.sinks },
                   { "--bias", o->trial.bias },
                   { "--pattern", bitmap } };
    list_targets(o, targets);
    for (int i = 0; i < FILES; i++) {
        const struct target *t = &targets[i];
        if (!t->path) continue;
        bool backward = i == DSINKS || (i != TRACE && tensor_is_backward(t->tensor));
        if (backward && !o->trial.backward) return refuse("%s is for --backward", t->flag);
        if (i == DSINKS && !o->trial.sinks) return refuse("--dsinks needs --sinks beside it");
        for (int j = 0; j < i; j++)
            if (targets[j].path && outfile_same(targets[j].path, t->path))
                return refuse("%s and %s name the same file", targets[j].flag, t->flag);
        for (int j = 0; j < COUNT(inputs); j++)
            if (inputs[j].path && outfile_same(inputs[j].path, t->path))
                return refuse("%s would overwrite %s, the file of %s", t->flag, inputs[j].path,
                              inputs[j].flag);
        if (i != TRACE && strstr(t->path, ".safetensors"))
            return refuse("%s: %s: .safetensors files are not in this version; .npy is written",
                          t->flag, t->path);
        int status = outfile_check(t->flag, t->path);
        if (status) return status;
    }
    return EXIT_PASS;
}

int store_check(const struct options *o)
{
    char *bitmap = trial_bitmap(&o->trial);
    int status = check_targets(o, bitmap);
    free(bitmap);
    return status;
}

static int write_tensor(const struct engine *engine, const struct target *target,
                        struct outfile *file)
{
    const struct trial *t = engine->trial;
    void *memory;
    struct npy_output output = {
        .dtype = tensor_dtype(t, target->tensor),
        .axes = target->tensor == TENSOR_LSE ? 3 : 4,
        .shape = { t->batch, tensor_length(t, target->tensor), tensor_heads(t, target->tensor),
                   tensor_dim(t, target->tensor) },
    };
    int status = engine_gather(engine, target->tensor, &output.data, &memory);
    if (status) return status;
    status = npy_write(file, target->path, &output);
    free(memory);
    return status;
}

static int write_dsinks(const struct engine *engine, const char *path, struct outfile *file)
{
    struct npy_output output = {
        .dtype = RA_F32, .axes = 1, .shape = { engine->trial->q_heads }, .data = engine->dsinks
    };
    return npy_write(file, path, &output);
}

static int write_target(const struct engine *engine, const struct target *targets, int i,
                        struct outfile *file)
{
    const struct target *target = &targets[i];
    if (i == TRACE) return trace_write(engine->setup.trace, file, target->path);
    if (i == DSINKS) return write_dsinks(engine, target->path, file);
    return write_tensor(engine, target, file);
}

int store_results(const struct options *o, const struct engine *engine)
{
    struct target targets[FILES];
    struct outfile files[FILES] = { { .path = NULL } };
    int status = EXIT_PASS;
    list_targets(o, targets);
    for (int i = 0; i < FILES && !status; i++) {
        if (targets[i].path) status = write_target(engine, targets, i, &files[i]);
    }
    for (int i = 0; i < FILES && !status; i++)
        if (files[i].temporary) status = outfile_commit(&files[i]);
    for (int i = 0; i < FILES; i++) outfile_discard(&files[i]);
    return status;
}
