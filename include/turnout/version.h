// The version, stated once: CMake and the Python package read it from here.
#pragma once

#define TURNOUT_VERSION "0.1.0"
