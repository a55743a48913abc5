// The version. CMake and the Python package read it from this line.
#pragma once

#define TURNOUT_VERSION "0.1.0"
