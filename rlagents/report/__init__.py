"""One HTML file that shows what runs did: curves, cost, alarms, configs, and every logged trajectory token by token."""
