#include "tools/softgpu/tests/engine/launch.h"
