// Everything that a generated pipeline kernel uses.
#pragma once
#include "headrace/types.cuh"
#include "headrace/load.cuh"
#include "headrace/search.cuh"
#include "headrace/text.cuh"
#include "headrace/arithmetic.cuh"
#include "headrace/calendar.cuh"
#include "headrace/probe.cuh"
#include "headrace/keys.cuh"
#include "headrace/aggregate.cuh"
#include "headrace/groups.cuh"
#include "headrace/queue.cuh"
#include "headrace/rows.cuh"
