/* SPDX-License-Identifier: MIT */
#include "check.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../types.h"
#include "operations.h"
#include "integer_steps.h"

#define MOST_ARENA (UINT64_C(1) << 32)

/* How many values of four bytes a step brings along. */
static uint64_t value_count(const mpr_operands *s)
{
    switch (mpr_step_forms[s->step->operation].data) {
    case MPR_WEIGHTS: return 2 * (uint64_t)(s->step->inputs - 1) * s->out->c;
    case MPR_RESULT:
    case MPR_SOURCES: return mpr_values(s->out);
    case MPR_RULES: return sizeof(mpb_integer_rules) / 4;
    default: return 0;
    }
}

int mpr_check_step_data(const mpr_operands *s, char *error)
{
    const mpr_file *file = s->file;
    const mpb_step *step = s->step;
    const int kind = mpr_step_forms[step->operation].data;
    const uint64_t count = value_count(s);
    if (!count) return 0;
    char label[96];
    snprintf(label, sizeof label, "values of layer %d (%.48s)", (int)step->layer, mpr_layer_name(file, step->layer));
    const void *values = mpr_piece(file, &step->values, 4 * count, label, error);
    if (!values) return -1;
    int is_valid = kind != MPR_RULES || mpr_are_valid_rules(s, values);
    for (uint64_t i = 0; i < count && is_valid && kind != MPR_RULES; i++)
        is_valid = kind == MPR_SOURCES ? ((const int32_t *)values)[i] < (int64_t)mpr_values(s->in)
                                       : isfinite(((const float *)values)[i]);
    return is_valid ? 0 : mpr_fail(error, "%s: %s: make no sense; export it again", file->name, label);
}

/* NULL, or what is wrong with a step whose slots exist. */
static const char *step_problem(const mpr_operands *s, int64_t *work)
{
    const mpb_step *step = s->step;
    if (step->operation < 0 || step->operation >= MPB_OPERATIONS)
        return "this program does not know the operation; build a newer mprun";
    const int inputs = mpr_step_forms[step->operation].inputs;
    if (inputs && step->inputs != inputs) return "it has another number of inputs";
    mp_activation_scheme scheme;
    if (mpr_makes_codes(step, s->out, &scheme)) {
        if (!mp_known_scheme(&scheme)) return "its scheme is unknown";
        if (step->calibrated && !(isfinite(step->low) && isfinite(step->high) && step->low <= step->high))
            return "its range is none";
    }
    *work += (int64_t)mpr_values(s->out);
    return mpr_shape_problem(s, work);
}

static const char *slot_problem(const mpb_program *program, const mpb_slot *slot)
{
    if (slot->h < 1 || slot->w < 1 || slot->c < 1 || slot->h > MOST_SIDE || slot->w > MOST_SIDE ||
        slot->c > MOST_CHANNELS || !mp_is_type(slot->type) || (int64_t)slot->h * slot->w > MOST_VALUES / slot->c)
        return "is no tensor";
    if (slot->at < -1 || (slot->at > 0 && slot->at % MPB_ALIGN)) return "lies nowhere";
    const uint64_t bytes = mpr_slot_bytes(slot);
    if (slot->at >= 0 && (bytes > program->arena_bytes || (uint64_t)slot->at > program->arena_bytes - bytes))
        return "lies outside of the arena";
    return 0;
}

/* Whether two slots share memory; the image's is its own. */
static int overlap(const mpb_slot *a, const mpb_slot *b)
{
    if (a->at < 0 || b->at < 0) return a->at < 0 && b->at < 0;
    return (uint64_t)a->at < (uint64_t)b->at + mpr_slot_bytes(b) &&
           (uint64_t)b->at < (uint64_t)a->at + mpr_slot_bytes(a);
}

static int check_steps(const mpr_file *file, const mpb_program *program, unsigned char *written, char *error)
{
    const mpb_slot *slots = file->slots + program->first_slot;
    int64_t work = 0;
    written[0] = 1;
    for (int32_t n = 0; n < program->steps; n++) {
        const mpb_step *step = &file->steps[program->first_step + n];
        const char *problem = 0;
        const int32_t *inputs = file->places + step->first_input;
        if (step->output < 0 || step->output >= program->slots || step->inputs < 1 || step->inputs > MOST_INPUTS ||
            !mpr_has(file, MPB_PLACES, step->first_input, step->inputs))
            return mpr_fail(error, "%s: step %d: its slots do not exist; export it again", file->name, n);
        const int head = step->operation == MPB_YOLO;
        for (int32_t i = 0; i < step->inputs && !problem; i++) {
            if (inputs[i] < 0 || inputs[i] >= program->slots || !written[inputs[i]])
                problem = "reads what no step has written";
            else if (!head && overlap(&slots[inputs[i]], &slots[step->output]))
                problem = "writes over its input";
        }
        if (!problem && !head && (step->output == 0 || slots[step->output].at < 0 || written[step->output]))
            problem = "writes where it may not";
        if (!problem) {
            const mpr_operands operands = mpr_operands_of(file, slots, step);
            problem = step_problem(&operands, &work);
        }
        if (!problem && work > MOST_WORK) problem = "it would run for hours";
        if (problem)
            return mpr_fail(error, "%s: step %d (%s for %s): %s; export it again", file->name, n,
                            mpr_operation_name(step), mpr_layer_name(file, step->layer), problem);
        written[step->output] = 1;
    }
    for (int32_t i = 0; i < program->outputs; i++) {
        const int32_t slot = file->places[program->first_output + i];
        if (slot < 0 || slot >= program->slots || !written[slot] || slots[slot].type != MP_TYPE_F32)
            return mpr_fail(error, "%s: output %d is not written as fp32; export it again", file->name, i);
    }
    return 0;
}

int mpr_check_program(const mpr_file *file, int64_t number, char *error)
{
    const mpb_program *program = &file->programs[number];
    const mpb_network *network = file->network;
    if (program->slots < 1 || program->outputs < 1 || program->outputs > MOST_INPUTS || program->steps < 0 ||
        !mpr_has(file, MPB_SLOTS, program->first_slot, program->slots) ||
        !mpr_has(file, MPB_STEPS, program->first_step, program->steps) ||
        !mpr_has(file, MPB_PLACES, program->first_output, program->outputs))
        return mpr_fail(error, "%s: program %d: does not exist; export it again", file->name, (int)number);
    const mpb_slot *slots = file->slots + program->first_slot;
    uint64_t tensor_bytes = 0;
    for (int32_t i = 0; i < program->slots; i++) {
        const char *problem = slot_problem(program, &slots[i]);
        if (problem) return mpr_fail(error, "%s: slot %d %s; export it again", file->name, i, problem);
        tensor_bytes += (mpr_slot_bytes(&slots[i]) + MPB_ALIGN - 1) / MPB_ALIGN * MPB_ALIGN;
    }
    if (program->arena_bytes > tensor_bytes || program->arena_bytes > MOST_ARENA)
        return mpr_fail(error, "%s: an arena of %llu bytes is more than its tensors need, or 4 GiB; export it again",
                        file->name, (unsigned long long)program->arena_bytes);
    if (slots[0].at != -1 || slots[0].type != MP_TYPE_F32 || slots[0].h != network->in_h ||
        slots[0].w != network->in_w || slots[0].c != network->in_c)
        return mpr_fail(error, "%s: the image is not the network's input; export it again", file->name);
    unsigned char *written = calloc(1, (size_t)program->slots);
    if (!written) return mpr_fail(error, "%s: no memory", file->name);
    const int result = check_steps(file, program, written, error);
    free(written);
    return result;
}
