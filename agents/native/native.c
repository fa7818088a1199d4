// The library: one file for the compiler, so that its functions call each other at no cost. It reads torch's weights
// where they are.
#include "vectors.h"
#include "products.h"
#include "network.h"
#include "recurrent.h"
#include "kinds.h"
#include "backward.h"
#include "pair.h"
#include "discrete.h"
#include "gaussian.h"
#include "losses.h"
#include "learning.h"
#include "sums.h"
