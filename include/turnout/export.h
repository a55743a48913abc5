// Marks symbols that the shared libraries export; all others are hidden.
#pragma once

#define TURNOUT_API __attribute__((visibility("default")))
