// What the shim asks of the analyzer: from the text of a trace to a schedule, within the program's process.
#pragma once

#include "analyzer/service/graph_schedule.h"
#include "analyzer/service/region_schedule.h"
#include "analyzer/service/trial.h"
