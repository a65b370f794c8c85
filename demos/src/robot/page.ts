/** Two robots: a quadruped that walks by its policy, and a head with its kinematics. */

import { start } from "../lib/shell.js";
import { Head } from "./head-page.js";
import { Walk } from "./walk.js";

void start();
void new Walk().start();
void Head.start();
