/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "pass.h"
#include <stdlib.h>
#include <string.h>
#include "../red_zone.h"
#include "../types.h"
#include "check.h"
#include "memory.h"
#include "integer_steps.h"

/* Where in a memory that is cut up the part after this one begins. */
static size_t next_offset(size_t at, uint64_t bytes)
{
    return at + (size_t)(bytes + MPB_ALIGN - 1) / MPB_ALIGN * MPB_ALIGN + MP_RED_ZONE;
}

/* The image is the largest tensor of most networks and comes from memory: where a step converts it for one convolution alone, that
 * one does it while it reads, as in a session. The same rule as image_conversions of mpnet/engine/bind.py;
 * tests/mprun/test_conversions.py holds both to the same steps. */
static void defer_image_conversions(mpr_pass *pass)
{
    const mpb_program *program = pass->program;
    mp_activation_scheme scheme;
    for (int32_t n = 0; n < program->steps; n++)
        for (int32_t i = 0; i < pass->steps[n].inputs; i++)
            pass->tensors[pass->places[pass->steps[n].first_input + i]].readers++;
    for (int32_t i = 0; i < program->outputs; i++) pass->tensors[pass->places[program->first_output + i]].readers++;
    for (int32_t n = 0; n < program->steps; n++) {
        const mpb_step *step = &pass->steps[n];
        const int32_t input = pass->places[step->first_input];
        const int plain = step->operation == MPB_CAST || (step->operation == MPB_QUANTIZE &&
                                                          mpr_makes_codes(step, &pass->slots[step->output], &scheme) &&
                                                          scheme.mode < MP_TF_MIN_COMBINED);
        if (plain && input == 0) pass->tensors[step->output].is_deferred = pass->tensors[step->output].readers == 1;
        for (int32_t i = 0; step->operation != MPB_CONVOLVE && i < step->inputs; i++)
            pass->tensors[pass->places[step->first_input + i]].is_deferred = 0;
    }
}

/* What the codes that a step makes mean: known from its calibrated range, or found at run time from its input's range. */
static int prepare_codes(mpr_pass *pass, const mpb_step *step, char *error)
{
    const mpr_file *file = pass->weights->file;
    const float range[2] = {step->low, step->high};
    mp_activation_scheme scheme;
    size_t bad;
    if (!mpr_makes_codes(step, &pass->slots[step->output], &scheme)) return 0;
    if (!step->calibrated) {
        pass->tensors[pass->places[step->first_input]].needs_range = 1;
        return 0;
    }
    if (mp_ranges_to_params(range, 1, &scheme, &pass->tensors[step->output].params, &bad) == MP_OK) return 0;
    return mpr_fail(error, "%s: layer %d (%s): its calibrated range is too narrow or too wide; use affine", file->name,
                    (int)step->layer, mpr_layer_name(file, step->layer));
}

/* Values that the step converts by way of float32 (mpr_pass.floats); 0: it needs no such memory. */
static size_t float_count(const mpr_pass *pass, const mpb_step *step)
{
    if (step->operation != MPB_QUANTIZE && step->operation != MPB_DEQUANTIZE) return 0;
    const int32_t input = pass->places[step->first_input];
    const mpb_slot *reals = &pass->slots[step->operation == MPB_QUANTIZE ? input : step->output];
    return reals->type == MP_TYPE_F32 ? 0 : (size_t)mpr_values(reals);
}

/* Packs a convolution's weights, or finds them packed, and makes sure that the scratch memory is large enough for it. */
static int prepare_convolution(mpr_pass *pass, const mpr_operands *operands, char *error)
{
    mpr_weights *weights = pass->weights;
    const mpb_step *step = operands->step;
    int max_distance = 0;
    if (step->operation == MPB_INTEGER_CONVOLVE) {
        const mp_quant_params *params = &pass->tensors[operands->inputs[0]].params;
        if (!(params->scale > 0.0f))
            return mpr_fail(error, "%s: layer %d (%s): reads codes that are not known before; export it again",
                            weights->file->name, (int)step->layer, mpr_layer_name(weights->file, step->layer));
        max_distance = mpr_max_distance(operands->in, params);
    }
    if (mpr_prepare_weights(weights, step->convolution, max_distance, error)) return -1;
    const size_t bytes =
        mp_conv_scratch_bytes(weights->table, weights->packed[step->convolution], step->pooled, weights->threads);
    if (bytes > pass->scratch_bytes) pass->scratch_bytes = bytes;
    return 0;
}

/* All that a step needs but memory for its tensors. Steps come in their order: codes keep the meaning of codes that they are moved from. */
static int prepare_step(mpr_pass *pass, const mpb_step *step, char *error)
{
    const mpr_operands operands = mpr_operands_of(pass->weights->file, pass->slots, step);
    mp_quant_params *params = &pass->tensors[step->output].params;
    if (prepare_codes(pass, step, error) || mpr_check_step_data(&operands, error)) return -1;
    if (mpr_step_forms[step->operation].data == MPR_RULES) mpr_integer_params(&operands, params);
    if (mpr_operations[step->operation].moves_values) *params = pass->tensors[operands.inputs[0]].params;
    return mpr_convolves(step) ? prepare_convolution(pass, &operands, error) : 0;
}

/* One piece of memory for the image, the arena of all other tensors, scratch memory and `floats` floats, with a red zone behind
 * each. -1: there is none. */
static int take_memory(mpr_pass *pass, size_t floats)
{
    const mpb_program *program = pass->program;
    const size_t arena = next_offset(0, mpr_slot_bytes(&pass->slots[0])),
                 scratch = next_offset(arena, program->arena_bytes), reals = next_offset(scratch, pass->scratch_bytes),
                 end = next_offset(reals, floats * sizeof(float));
    char *memory = pass->memory = mpr_allocate(pass->memory_bytes = end);
    if (!memory) return -1;
    pass->image = (void *)memory;
    pass->arena = memory + arena;
    pass->scratch = memory + scratch;
    pass->floats = (void *)(memory + reals);
    const size_t ends[] = {arena, scratch, reals, end};
    for (int i = 0; i < 4; i++) mp_forbid(memory + ends[i] - MP_RED_ZONE);
    for (int32_t i = 0; i < program->slots; i++)
        pass->tensors[i].data = i == 0                  ? (void *)pass->image
                                : pass->slots[i].at < 0 ? 0
                                                        : memory + arena + pass->slots[i].at;
    return 0;
}

int mpr_pass_open(mpr_pass *pass, mpr_weights *weights, int64_t program_index, char *error)
{
    const mpr_file *file = weights->file;
    *pass = (mpr_pass){.weights = weights};
    if (mpr_check_program(file, program_index, error)) return -1;
    const mpb_program *program = pass->program = &file->programs[program_index];
    pass->slots = file->slots + program->first_slot;
    pass->steps = file->steps + program->first_step;
    pass->places = file->places;
    pass->tensors = calloc((size_t)program->slots, sizeof *pass->tensors);
    int failed = 0;
    size_t floats = 0;
    if (pass->tensors) {
        defer_image_conversions(pass);
        for (int32_t n = 0; n < program->steps && !failed; n++) {
            const size_t count = float_count(pass, &pass->steps[n]);
            floats = count > floats ? count : floats;
            failed = prepare_step(pass, &pass->steps[n], error);
        }
    }
    if (!failed && (!pass->tensors || take_memory(pass, floats)))
        failed = mpr_fail(error, "%s: no memory for the tensors (%llu bytes)", file->name,
                          (unsigned long long)program->arena_bytes);
    if (failed) mpr_pass_close(pass);
    return failed;
}

void mpr_pass_close(mpr_pass *pass)
{
    free(pass->tensors);
    free(pass->memory);
    pass->tensors = 0;
    pass->memory = 0;
}

void mpr_pass_touch(mpr_pass *pass, size_t skipped_bytes)
{
    enum { PAGE = 4096 };
    for (size_t at = 0; at + skipped_bytes < pass->memory_bytes; at += PAGE) ((volatile char *)pass->memory)[at] = 0;
}

int mpr_pass_step(mpr_pass *pass, const mpb_step *step)
{
    const mpr_operands operands = mpr_operands_of(pass->weights->file, pass->slots, step);
    mpr_tensor *out = &pass->tensors[step->output];
    if (step->operation != MPB_YOLO) out->has_range = 0;
    if (mpr_operations[step->operation].moves_values) out->params = pass->tensors[operands.inputs[0]].params;
    return mpr_run_operation(pass, &operands);
}

static const char *reason(int status)
{
    return status == MP_NONFINITE ? "a value is NaN or infinite" : "the kernel refused its arguments";
}

int mpr_pass_run(mpr_pass *pass, char *error)
{
    const mpr_file *file = pass->weights->file;
    const mpb_program *program = pass->program;
    pass->tensors[0].has_range = 0;
    for (int32_t n = 0; n < program->steps; n++) {
        const int status = mpr_pass_step(pass, &pass->steps[n]);
        if (status != MP_OK)
            return mpr_fail(error, "%s: layer %d (%s): %s: %s", file->name, (int)pass->steps[n].layer,
                            mpr_layer_name(file, pass->steps[n].layer), mpr_operation_name(&pass->steps[n]),
                            reason(status));
    }
    for (int32_t i = 0; i < program->outputs; i++) {
        const int32_t slot = pass->places[program->first_output + i];
        int checked = 0;
        for (int32_t n = 0; n < program->steps && !checked; n++)
            checked = pass->steps[n].output == slot && mpr_operations[pass->steps[n].operation].checks_result;
        float range[2];
        if (!checked && mp_value_range(pass->weights->table, pass->tensors[slot].data, MP_TYPE_F32, 1,
                                       mpr_values(&pass->slots[slot]), range, pass->weights->threads) != MP_OK)
            return mpr_fail(error, "%s: output %d: a value is NaN or infinite", file->name, i);
    }
    return 0;
}

const mpb_slot *mpr_pass_output(const mpr_pass *pass, int output_index, const float **data)
{
    const int32_t slot = pass->places[pass->program->first_output + output_index];
    *data = pass->tensors[slot].data;
    return &pass->slots[slot];
}
