// SPDX-License-Identifier: Apache-2.0
#include "server/domain/model_shape.h"
